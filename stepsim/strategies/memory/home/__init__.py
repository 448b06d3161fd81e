"""HOME: keep, swap or recompute each layer's feature map, decided for the whole model by a particle swarm.

He, P. Chen, S. Chen, Z. Li, S. Yang, W. Chen, Shou: "HOME: a holistic GPU memory management framework for deep
learning", IEEE Transactions on Computers 72(3), 2023. `problem` has the step as arrays, `evaluator` the paper's
Algorithm 2, `swarm` its Algorithms 1 and 3, `strategy` what the command line offers.
"""
